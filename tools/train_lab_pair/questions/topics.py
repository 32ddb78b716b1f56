"""What the family `explanation` knows: one line a topic, seven short facts each.

name | kind | what it does | how it works | a cost or a limit | where it is used | an example or a hint
"""

# ruff: noqa: E501 (a table: one topic a line)
from __future__ import annotations

from dataclasses import dataclass

_TABLE = """
the quicksort algorithm|a sorting algorithm|sorts a list by dividing it around a pivot|it puts smaller items on the left and larger items on the right, and sorts both parts the same way|it takes n log n steps on average and n squared steps at worst|sorting large lists in memory|a good pivot splits the list in the middle
the merge sort algorithm|a sorting algorithm|sorts a list by merging sorted halves|it cuts the list in two, sorts both halves and merges them|it needs extra memory for the merged list|sorting linked lists and large files|two sorted halves are merged by taking the smaller head each time
the bubble sort algorithm|a sorting algorithm|sorts a list by swapping neighbours|it compares each pair of neighbours and swaps them if they are out of order|it takes n squared steps on average|teaching how sorting works|the largest item moves to the end in the first pass
the insertion sort algorithm|a sorting algorithm|sorts a list by inserting one item at a time|it moves each item to the left until it meets a smaller one|it is slow for long lists|short lists and lists that are almost sorted|people sort playing cards in this way
the selection sort algorithm|a sorting algorithm|sorts a list by selecting the smallest item again and again|it finds the smallest remaining item and puts it at the front|it always takes n squared steps|cases where writing is expensive|the first item is right after the first pass
the heapsort algorithm|a sorting algorithm|sorts a list with the help of a heap|it builds a heap and takes the largest item from the top again and again|it is not stable|systems that need a firm limit on time|the top of the heap is always the largest item
the binary search algorithm|a search algorithm|finds an item in a sorted list|it looks at the middle item and drops the half that cannot hold the target|it only works on sorted data|looking up values in large tables|a list of a million items needs about twenty looks
the linear search algorithm|a search algorithm|finds an item by looking at each one in turn|it starts at the front and stops when the item is found|it takes n steps at worst|short lists and lists in no order|finding a name in an unsorted list works like this
the breadth-first search algorithm|a graph algorithm|visits a graph level by level|it keeps a queue of nodes and adds the neighbours of each node|it needs memory for a whole level|finding the shortest path in a graph without weights|friends come first and friends of friends come next
the depth-first search algorithm|a graph algorithm|visits a graph by going as deep as it can|it follows one path to the end and then steps back|it may not find the shortest path|finding cycles and solving mazes|a stack or recursion remembers the way back
Dijkstra's algorithm|a graph algorithm|finds the shortest paths from one node|it always takes the nearest unvisited node and updates its neighbours|it does not work with negative weights|maps and network routing|a priority queue gives the nearest node
dynamic programming|a problem-solving method|solves a problem by solving smaller ones once|it stores the answer of each subproblem in a table|it needs memory for the table|finding best paths and matching texts|the Fibonacci numbers can be computed in this way
recursion|a programming technique|solves a problem by calling the same function on a smaller one|each call works on a smaller input until a base case is reached|too many calls can fill the stack|trees, lists and divide-and-conquer methods|the factorial of n is n times the factorial of n minus one
a stack|a data structure|stores items so that the last one in is the first one out|items are pushed on the top and popped from the top|only the top item can be reached|undo functions and function calls|a pile of plates is a stack
a queue|a data structure|stores items so that the first one in is the first one out|items join at the back and leave at the front|items in the middle cannot be reached quickly|task lists and message systems|people who wait at a shop form a queue
a linked list|a data structure|stores items in nodes that point to the next one|each node holds a value and a link to the next node|finding an item takes n steps|lists that grow and shrink often|adding an item at the front takes one step
a hash table|a data structure|stores values under keys|a hash function turns each key into a place in an array|two keys can fall on the same place|dictionaries, caches and sets|looking up a key takes one step on average
a binary tree|a data structure|stores items in nodes with at most two children|each node has a left child and a right child|it can become deep and slow if it is not balanced|sorted data and expression parsing|the node at the top is called the root
a heap|a data structure|keeps the largest or smallest item on top|each parent is not smaller than its children|other items are not in sorted order|priority queues and sorting|adding an item takes log n steps
a graph|a data structure|stores nodes and the edges between them|each node keeps a list of its neighbours|some questions about large graphs take very long|maps, networks and social data|cities and roads form a graph
an array|a data structure|stores items side by side in memory|each item is reached by its index|its size is often fixed|tables, images and vectors|the first item usually has the index zero
a Python list|a built-in type|stores items in order|it grows when items are appended|inserting at the front is slow|sequences that change|square brackets make a list
a Python dictionary|a built-in type|maps keys to values|it hashes each key to find its value|keys must be hashable|counting, grouping and settings|curly braces with colons make a dictionary
a Python tuple|a built-in type|stores a fixed group of items|its items cannot be changed after it is made|it cannot grow|returning several values from a function|round brackets and commas make a tuple
a Python set|a built-in type|stores unique items|it hashes items so that membership is fast|it keeps no order|removing duplicates and comparing groups|curly braces without colons make a set
a list comprehension|a Python expression|builds a list from another sequence|it evaluates an expression for each item and can filter with a condition|long ones are hard to read|short transformations of data|square brackets hold the expression and the loop
a generator|a Python feature|produces values one at a time|it pauses at each yield and continues when the next value is needed|it can be read only once|large files and endless sequences|a function with yield is a generator function
a decorator|a Python feature|changes or extends a function|it takes a function and returns a new one|too many make code hard to follow|logging, caching and access checks|an at sign above a function applies it
a context manager|a Python feature|sets something up and cleans it up|it runs code before and after a block|it must be used with a with statement|files, locks and connections|opening a file with a with statement closes it at the end
an exception|a language feature|reports an error that stops normal work|it travels up the calls until a handler catches it|catching everything hides bugs|input errors and missing files|dividing by zero raises one
a lambda|a Python expression|makes a small function without a name|it holds one expression and returns its value|it cannot hold statements|short callbacks and sort keys|sorting by length often uses one
a class|a language feature|describes objects with data and methods|it is called to make an object and sets up its fields|deep hierarchies are hard to change|modelling things that have state|the method __init__ sets the fields
inheritance|a language feature|lets a class reuse another class|the child class gets the methods of its parent and can replace them|it ties classes closely together|families of similar objects|a dog class can inherit from an animal class
a module|a Python feature|groups code in a file|it is loaded once when it is first imported|circular imports cause trouble|splitting a program into parts|the import statement loads it
a virtual environment|a Python tool|keeps the packages of a project apart|it has its own folder for the interpreter and packages|it must be activated or named|projects that need different versions|the venv module makes one
a compiler|a program|translates source code into machine code|it parses the code, improves it and writes instructions|it takes time before the program runs|languages such as C and Rust|errors of type are found before the program runs
an interpreter|a program|runs source code directly|it reads the code and executes it step by step|it is slower than compiled code|scripts and interactive work|Python is usually run by one
an operating system|a program|manages the hardware and the other programs|it shares time, memory and devices among programs|a fault in it can stop everything|computers and phones|Linux is one
a database|a system|stores data so that it can be searched|it keeps tables and indexes on disk|it needs care, backups and tuning|shops, banks and web sites|a query asks for the rows that match
an index|a database structure|makes searches in a table fast|it keeps the values of a column in sorted order|it slows down writing|columns that are searched often|the index of a book works in a similar way
a cache|a store|keeps results that were needed recently|it looks for the answer in fast memory first|its contents can become stale|web pages, disks and processors|a second visit to a page is faster because of it
an API|an interface|lets programs talk to each other|it defines requests and the answers to them|changing it breaks its users|web services and libraries|a weather site may offer one
a web server|a program|answers requests for pages|it waits for connections and sends files or results|too many requests can overload it|web sites and services|a browser talks to one
a firewall|a security system|blocks unwanted network traffic|it checks each packet against a list of rules|it cannot stop every attack|homes, companies and data centres|a rule may close all ports but one
encryption|a security method|makes data unreadable without a key|it mixes the data with a key in a way that is hard to undo|a lost key means lost data|messages, disks and payments|a padlock in the browser shows it
a hash function|a function|turns data into a short fixed number|the same input always gives the same output|different inputs can give the same output|tables, checks and signatures|a small change of the input changes the whole output
version control|a tool|keeps the history of files|each change is stored with its author and date|conflicts must be solved by hand|software projects|Git is the best known one
a unit test|a test|checks one small part of a program|it calls a function and compares the result with the expected one|it cannot find every bug|finding faults early|a test of addition may check that two and two is four
debugging|a task|finds and removes faults in a program|the programmer repeats the fault and narrows down its cause|it can take a long time|every software project|printing a value is the simplest way
a variable|a language feature|gives a name to a value|the name refers to a place in memory|a poor name confuses the reader|every program|the line x equals five makes one
a loop|a language feature|repeats a block of code|it runs the block until a condition fails or the items end|a wrong condition makes it endless|lists, files and counting|a for loop visits each item
a function|a language feature|groups code under a name|it takes arguments, runs its body and returns a value|a long one is hard to test|avoiding repeated code|the word def starts one in Python
machine learning|a field of computing|finds patterns in data|a model changes its numbers to make fewer errors on examples|it needs much good data|speech, images and recommendations|a spam filter learns from marked messages
a neural network|a model|maps inputs to outputs through layers of numbers|each layer multiplies, adds and bends its input|it is hard to explain its decisions|images, speech and language|training changes the weights a little at each step
a tokenizer|a program|cuts text into pieces that a model can read|it looks up the longest known pieces and gives each a number|rare words become many pieces|language models and search|a common word is often one token
speculative decoding|a decoding method|makes a language model faster without changing its output|a small model drafts several tokens and the large model checks them in one pass|wrong drafts waste work|serving large language models|every accepted draft saves one pass of the large model
a transformer|a neural network|reads all tokens of a text together|attention lets each token look at the others|its cost grows with the square of the length|translation and chat|a decoder predicts the next token
gravity|a force|pulls masses towards each other|it grows with mass and falls with the square of the distance|it is weak for small objects|keeping planets in their orbits|an apple falls because of it
photosynthesis|a process in plants|turns light into chemical energy|leaves use light, water and carbon dioxide to make sugar|it stops in the dark|feeding plants and making oxygen|green leaves hold the chlorophyll that it needs
evaporation|a change of state|turns a liquid into a gas|fast molecules leave the surface|it needs heat|drying clothes and cooling skin|a puddle disappears on a warm day
the water cycle|a natural process|moves water between sea, air and land|water evaporates, forms clouds and falls as rain|it can bring floods or droughts|filling rivers and lakes|rain that falls on a hill flows back to the sea
a rainbow|an effect of light|shows the colours of sunlight|drops of water bend and reflect the light|it needs sun and rain at the same time|nothing but joy|the sun is always behind you when you see one
the moon|a natural satellite|moves around the Earth|it takes about four weeks for one orbit|it has no air|causing the tides|we always see the same side
a volcano|an opening in the crust|lets hot rock reach the surface|pressure pushes melted rock upwards|it can destroy towns|making new land and rich soil|Etna is a famous one
an earthquake|a movement of the ground|shakes the surface of the Earth|plates of rock slip along a fault|it cannot be predicted well|learning about the inside of the Earth|most of them are too weak to feel
electricity|a form of energy|moves charge through a wire|a voltage pushes electrons along a conductor|it can be dangerous|light, heat and motors|a battery is a source of it
a magnet|an object|attracts iron|its small parts point in the same direction|heat can destroy its force|motors, compasses and speakers|equal poles push each other away
the heart|a muscle|pumps blood through the body|it squeezes and relaxes about seventy times a minute|it cannot rest for long|carrying oxygen to all organs|exercise makes it stronger
sleep|a state of rest|lets the body and the mind recover|the brain passes through light and deep phases|too little of it harms health|memory, growth and mood|adults need about eight hours
bread|a food|feeds people in many countries|flour, water and yeast form a dough that rises and is baked|it becomes dry after some days|meals and sandwiches|yeast makes the small holes
a bicycle|a vehicle|carries a person by muscle power|pedals turn a chain that drives the back wheel|it is slower than a car|short trips and sport|gears make hills easier
democracy|a form of government|lets the people choose their leaders|citizens vote and the majority decides|decisions can take a long time|many countries of the world|an election is held every few years
inflation|an effect in an economy|makes prices rise over time|more money competes for the same goods|savings lose value|measuring how an economy changes|bread costs more than ten years ago
"""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    kind: str
    does: str
    how: str
    limit: str
    use: str
    hint: str


TOPICS = [Topic(*line.split("|")) for line in _TABLE.strip().splitlines()]
